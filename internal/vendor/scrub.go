package vendor

import "regexp"

// What a driver's error may quote of a DSN. A DSN that does not parse, perhaps
// because of its password, is quoted whole or in parts by those that tried.
var (
	urlText   = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)(?:[^"\\]|\\.)*`)
	portText  = regexp.MustCompile(`invalid port "[^"]*"`)
	mysqlText = regexp.MustCompile(`\S+@([a-z]*\()`)
	pairText  = regexp.MustCompile(`(?i)(password|passwd|pwd)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&;"']*)`)
)

// Scrub keeps passwords out of error texts.
func Scrub(text string) string {
	text = urlText.ReplaceAllString(text, "${1}***")
	text = portText.ReplaceAllString(text, "invalid port")
	text = mysqlText.ReplaceAllString(text, "***@${1}")
	return pairText.ReplaceAllString(text, "${1}${2}***")
}

// scrubbed is an error whose text is safe to show.
type scrubbed struct{ error }

func (e scrubbed) Error() string { return Scrub(e.error.Error()) }
func (e scrubbed) Unwrap() error { return e.error }
