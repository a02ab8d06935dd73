package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"mongodlm/internal/clock"
)

// helperLimit ends a helper that nobody ended, so that a failed test leaves nothing behind.
const helperLimit = time.Minute

// helper is what the test program does as the command of run.
func helper(what string, args []string) int {
	caught := make(chan os.Signal, 8)
	switch what {
	case "env": // tells its environment and ends with the code it was given
		fmt.Printf("%s=%s\n%s=%s\n", envName, os.Getenv(envName), envFence, os.Getenv(envFence))
		code, _ := strconv.Atoi(args[0])
		return code
	case "die": // dies of a signal
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "polite": // ends with 7 when it is told to
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		if s := helperSignal(caught); s != nil {
			fmt.Println("got", s)
			return 7
		}
	case "stubborn": // tells what it gets, and does not end
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		for s := helperSignal(caught); s != nil; s = helperSignal(caught) {
			fmt.Println("got", s)
		}
	case "parent": // leaves a stubborn child behind
		self, _ := os.Executable()
		child, err := os.StartProcess(self, []string{self, "helper", "stubborn"},
			&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err == nil {
			fmt.Println("parent of", child.Pid)
		}
		return 0
	case "distlock":
		os.Args = append([]string{"distlock"}, args...)
		main()
	}
	return 99
}

func helperSignal(caught <-chan os.Signal) os.Signal {
	limit := clock.System().NewTimer(helperLimit)
	defer limit.Stop()
	select {
	case s := <-caught:
		return s
	case <-limit.C():
		return nil
	}
}

// self is the test program as a command of run.
func self(t *testing.T, args ...string) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{path, "helper"}, args...)
}
