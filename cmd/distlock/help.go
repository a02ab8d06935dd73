package main

const rootText = `
distlock is the operator's command line of the distributed lock on MongoDB.

The server is named by --uri, --uri-file or the environment variable ` + envURI + `, the
database by --database or ` + envDatabase + `; it is "` + defaultDatabase + `" otherwise.

` + exitText + `The command run has exit codes of its own: distlock run -h`

const doctorText = `
Asks the server what it is and what the database can do there, and looks for what would harm or slow locks:
the clock of each member of a replica set, arbiters without which nothing is acknowledged, indexes that delete
documents, indexes that are missing (those of package claim's queues, too; with the command that creates
each), processes that are silent or have no ping, foreign managers. It tries each privilege that --features
need, by commands that change nothing, and races contenders on scratch documents in that database (a
collection distlock_check_..., removed afterwards). A server that is too old, or whose conditional updates
are not atomic, is refused with exit code 1; all else is a warning.

With --role it asks nobody, and prints the role with the least privileges for --features and --database as a
command of the shell; with --json too, the document of that command alone.
`

const locksText = `
Lists the locks: for how long each is held (server's clock), how old its holder's ping is, the
fence, the holder and its mode, how many wait in line, and why. A lock with several holders has a
line for each; a free lock shows its last holder. Below stands who waits, with the place (1 is the next):
whoever releases a lock grants it to the next in the same command. Those who wait inside their processes
because a line is full are not shown. Reads only; starts no heartbeat.

Locks with dead holders come first, then those for which ten or more wait for their turn, then the rest by name; --sort says
otherwise, and --json goes by name without it. --held, --waited and --silent leave others out.

With a NAME it shows all of that lock: holders and line, the evidence against a holder that was declared
dead, the newest of its history, and what would happen if a holder died now: when it would itself trust the
lock no more, when a contender could take it and by which rule, and who has it then. The holder's margin is
not recorded, so that of the default is told, a quarter of the takeover time. A contender's own takeover
time counts where it is longer.

A table is made to fit the terminal: process ids without their random part, long texts cut, columns
that say nothing left out. --wide, --json, files and pipes get everything. Names that a person could
not make out, with spaces at an end for one, are shown in quotes.

Marks: foreign (not one of ours: a mongos, or MongoDB's own lock manager), condemned (a contender
declared the holder dead), silent (the ping is older than the takeover time), no ping, bad ping,
lease (the lock has a life of its own) and lease ran out, leader and candidate (of package election; WHY
is their metadata then).
Documents that cannot be understood are listed below the table; they are never taken for free and
never taken over.
`

const jobsText = `
The old name of "distlock loops", and with a COLLECTION of "distlock claims COLLECTION". It goes with the next
version.
`

const loopsText = `
Lists the loops and schedules of package singleton: what became of the latest round, when it began and
when the next one is due (server's clock), whether the settings stop it, how many rounds have failed
without a success between, how many slots were missed, the process that runs it and the last error.

With a NAME it lists the latest 20 rounds of
that one, the newest first: when each began (server's clock), how long it took, the process, and its error. A round of
a process that died in it is "interrupted". Reads only; starts no heartbeat.
`

const claimsText = `
Counts the rows of a COLLECTION on which workers of package claim work, by their state; those that are not due yet
apart, where the queue has Config.Due. Documents that a queue's filter leaves out count, too. It tells of rows that
no worker is given, and why. Without a COLLECTION it counts those of all queues whose workers keep their locks in the
database and use the field "claim". With --dead it lists those that are dead, each with the errors of its last ten
attempts.

--retry makes dead rows ready, from their first attempt; their errors stay. --discard removes their documents. Both
take an ID as --dead shows it: a text in quotes (they may be left out where it could be nothing else), a number, the 24
digits of an ObjectID, anything else as extended JSON. A row that is not dead is left as it is, and the exit code is 1.
A queue's Filter is not known here: all rows of the collection count. Starts no heartbeat.
`

const psText = `
Lists the processes that ping, hold or wait: how old the ping is and the takeover time that the process has
recorded, how far its clock was from the server's at that ping, what it holds and what it waits for. Youngest
ping first; those without one come last. Pings of processes that hold nothing are removed after some days.
Reads only; starts no heartbeat. The marks are those of "distlock locks".
`

const watchText = `
Shows the locks that are held, and the lines, again every --every, until Ctrl-C: on a terminal as one screen, cut
to its size; elsewhere as a line for each lock that has changed. A server that goes away is told, and asked
again. With NAME only the locks with that in their name; --waited, --silent and --sort are those of "distlock locks".
A lock that passes no longer is told once more, as it is then. Keys of the screen: j and k a line, space and b ten, g and
G the first and the last, q ends. Reads only, two commands a reading; starts no heartbeat.
`

const historyText = `
Lists what happened to the locks, or to the lock NAME, newest first (server's clock): acquired, granted
in line, taken over, released, lost, lease ran out, dropped without a release, broken by hand, evicted. DETAIL is the cause
of a loss, the evidence of a takeover, or the reason given. FROM is who was taken over, broken or evicted. Programs
write what they held for a second or longer and what is unusual, a ping interval later at most; what one did since
its last ping is lost when it dies. "N not written" tells of events that were too many to be kept. Reads only; starts
no heartbeat.
`

const breakText = `
Frees a lock by force, if it is still held with the fence that "distlock locks" showed. Without
--yes it only shows what is held and who is next in line, and ends with 1. Where others wait, the
next in line is granted the lock at once. Of several holders the one with that fence is taken out.
A foreign holder raises no fence, so it is named by its session too, which is shown.

This is the one operation that can let two holders in: it does not wait. A holder that lives
learns of it only with its next ping, and until then works on. Make sure that it is dead or
stopped first.
`

const uiText = `
Shows the locks as a page, live, and prints its address: who holds what, who waits, who waits for whom,
the processes, elections, loops and queues, and who held what when. It reads only, and the server is
asked once an interval for all browsers together, and not at all while nobody looks.

It is shown to this machine only, unless --token-file, --tls-cert and --tls-key or both are given with
another address. On a machine that others use as well, give --token-file. With --allow-break the page
breaks locks as "distlock break" does: it shows the holder, asks for a reason, and does nothing if the
holder is another one by then. The dead rows of a queue can be tried again or removed then, too.
`

const runText = `
Acquires the lock, runs the command in a process group of its own and releases the lock when the
group has ended. The command finds the lock in ` + envName + ` and its fencing token in
` + envFence + `, and neither ` + envURI + ` nor ` + envDatabase + `. SIGHUP, SIGINT, SIGQUIT
and SIGTERM are forwarded to the group. By ` + envHeld + ` a run inside of it knows what is held around
it, so that of two that wait for each other one is told of the deadlock.

A command on a terminal has the terminal, as one that a shell starts; with a pipe before or behind
run it gets it when it reads from it. A command that is stopped, by Ctrl-Z for one, goes on at once:
others wait for what holds a lock. In the background, where it cannot have the terminal, a command
that wants to read from it is ended.

When the lock is lost the group gets SIGTERM, and SIGKILL after --grace. A heartbeat that fails
ends the lock so early that the SIGKILL comes before anybody may take it over: the margin between
the two is a quarter of --takeover, or --grace and a tenth of --takeover if that is more. A lock
that was broken by force is lost with the next ping; the next holder may be at work by then. What
the command leaves running when it ends is ended in the same way before the lock is released.

Should run itself be killed with SIGKILL, or stand still past the deadline of the lock, a second
process ends the group in the same way, before anybody may take the lock over. Should that be killed
as well, the command alone dies with run, on Linux; elsewhere nobody ends it. Whatever leaves the
group is not ended. Let what the command changes check the fence.

With --wait it stands in line for the lock, first come first served; "distlock locks" shows the
line. On a terminal, or with -v, it says what it waits for. With --shared any number may hold the
lock at a time, as long as nobody holds it without. With --permits N at most N may, and all who use
the lock at a time must say the same N.

A dead holder is taken over only after it has been watched for three of its ping intervals at
least, so --wait must be longer than that.
`

const benchText = `
Measures the server with one client: its round trip and the least write (one update of one document that a
majority has journaled), and beside them a lock that is taken and released, a lock that two processes hand to
each other, and rows that 16 workers claim and complete, one and a hundred at a time. It works in a database of
its own, distlock_bench_..., and drops it; it says so before. The default takes some seconds.
`

const serveText = `
Runs a config server in this process until it is interrupted, and prints its connection string. It
is for trying and for tests: one process, this machine only, no passwords.
`

const completionText = `
Prints a script that makes a shell complete commands, flags, and the names of locks and queues, which it asks the
server for: that of the line, or of the environment. Names with more than letters, digits and -_./:@%+,= are not offered.

  bash   eval "$(distlock completion bash)"      in ~/.bashrc, behind the package bash-completion
  zsh    eval "$(distlock completion zsh)"       in ~/.zshrc, behind compinit
  fish   distlock completion fish | source       in ~/.config/fish/config.fish
`

const versionText = `
Prints the version of the module, the commit it was built from, and the version of Go.
`
