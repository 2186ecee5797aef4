// Package schemas embeds the JSON Schemas (draft 2020-12) of what crosses
// process borders, with examples of right and wrong messages. The Go types
// live in pkg/bus; a test there holds both together, so neither is generated.
// Readers ignore members that they do not know: a message may gain members,
// while a change of meaning is a new file with the next version in its name.
//
// To add a message, add bus/<message>.v1.json, at least one
// bus/examples/<message>.v1.good-<why>.json and one .bad-<why>.json, and the
// type in pkg/bus with a row in its schema test.
package schemas

import "embed"

// FS holds the folder bus as it is in the repository.
//
//go:embed bus
var FS embed.FS
