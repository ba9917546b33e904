// Package clitest tests the command as people and scripts use it. It is a module of
// its own for the tools that this needs.
package clitest
