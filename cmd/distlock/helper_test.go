//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mongodlm/internal/clock"
)

// helperLimit bounds the life of a helper, so that a failed test leaves no process.
const helperLimit = 2 * time.Minute

// helper is the command that "distlock run" starts in the tests. The first parameter selects its
// behavior.
func helper(what string, args []string) int {
	caught := make(chan os.Signal, 8)
	signal.Ignore(syscall.SIGPIPE) // the reading parent may be gone
	switch what {
	case "env": // prints its environment and exits with the given code
		fmt.Printf("%s=%s\n%s=%s\n", envName, os.Getenv(envName), envFence, os.Getenv(envFence))
		code, _ := strconv.Atoi(args[0])
		return code
	case "die": // dies of a signal
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "polite": // exits with 7 after a signal
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		if s := helperSignal(caught); s != nil {
			fmt.Println("got", s)
			return 7
		}
	case "obedient": // exits with 0 after SIGTERM
		signal.Notify(caught, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		if helperSignal(caught) != nil {
			return 0
		}
	case "stubborn": // prints its signals, and does not exit
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		for s := helperSignal(caught); s != nil; s = helperSignal(caught) {
			fmt.Println("got", s)
		}
	case "parent": // leaves a child of the given kind
		return leaveBehind(args[0])
	case "environ": // prints its environment
		return printEnvironment()
	case "stop": // stops itself
		signal.Notify(caught, syscall.SIGCONT)
		fmt.Println("stops")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // another thread may stop first
		if helperSignal(caught) != nil {
			fmt.Println("goes on")
			return 3
		}
	case "read": // reads a line from its standard input
		fmt.Println("ready", os.Getpid())
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("read %q (%v)\n", line, err)
		return 5
	case "family": // starts two processes that do not end
		self, _ := os.Executable()
		_, err := os.StartProcess(self, []string{self, "helper", "stubborn"},
			&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err == nil {
			return helper("stubborn", nil)
		}
	case "args": // prints its arguments
		fmt.Printf("%q\n", args)
		return 0
	case "alive": // prints the live processes
		return printAlive(args)
	case "distlock":
		os.Args = append([]string{"distlock"}, args...)
		main()
	}
	return 99
}

// leaveBehind starts a helper, waits until it is ready, and returns while it runs.
func leaveBehind(what string) int {
	self, _ := os.Executable()
	reading, writing, _ := os.Pipe()
	child, err := os.StartProcess(self, []string{self, "helper", what},
		&os.ProcAttr{Files: []*os.File{nil, writing, os.Stderr}})
	if err == nil {
		_, _ = reading.Read(make([]byte, 1)) // until the helper is ready
		fmt.Println("parent of", child.Pid)
	}
	return 0
}

func printEnvironment() int {
	fmt.Println(strings.Join(os.Environ(), "\n"))
	given, _ := os.ReadFile("/proc/self/environ") // on Linux
	fmt.Println(string(given))
	return 0
}

func printAlive(pids []string) int {
	for _, arg := range pids {
		if pid, _ := strconv.Atoi(arg); !dead(pid) && !zombie(pid) {
			fmt.Println("alive:", pid)
		}
	}
	return 0
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
