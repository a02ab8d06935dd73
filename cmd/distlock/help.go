package main

import (
	"embed"
	"path"
)

// helpFiles has the help text of each command.
//
//go:embed help
var helpFiles embed.FS

// helpOf returns the help text of a command.
func helpOf(name string) string {
	text, err := helpFiles.ReadFile(path.Join("help", name+".txt"))
	if err != nil {
		panic(err) // the text is part of the program
	}
	return string(text)
}

const rootText = `
distlock is the operator's command line of the distributed lock on MongoDB.

The server is named by --uri, --uri-file or the environment variable ` + envURI + `, the
database by --database or ` + envDatabase + `; it is "` + defaultDatabase + `" otherwise.

` + exitText + `The command run has exit codes of its own: distlock run -h`
