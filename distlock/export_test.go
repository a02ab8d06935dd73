package distlock

// Grace is how much longer than its context a command may take on a store that does not notice its end.
const Grace = grace

// KindsOfCommands is how many kinds of commands [Stats] counts.
const KindsOfCommands = int(kindsOfCommands)
