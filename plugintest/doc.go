// Package plugintest holds what package plugin and others say of the shapes of other
// libraries to those libraries. It is a module of its own, so that no user's build
// gets them.
package plugintest
