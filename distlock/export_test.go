package distlock

// Grace is how much longer than its context a command may take on a store that does not notice its end.
const Grace = grace
