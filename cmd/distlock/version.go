package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"
)

// version prints the version of this build.
type version struct{}

func (version) flags(*pflag.FlagSet) {}

func (version) accept(c call) error { return c.nothing() }

func (version) secrets() string { return "" }

func (version) run(_ context.Context, s stdio) error {
	module, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				commit = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				commit += ", changed since"
			}
		}
	}
	_, err := fmt.Fprintf(s.out, "distlock %s\ncommit   %s\ngo       %s %s/%s\n",
		cmp.Or(module, "unknown"), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
