package schema

// Statements is for the test that holds the scripts to what the splitter
// relies on.
var Statements = statements
