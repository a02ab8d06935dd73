// Package queue is how a process waits for locks. Its waiters stand in the lines of the lock
// documents, and before them, where a line is full, in lines of their own inside the process. One
// loop looks after all of them, however many there are: it hears of grants by one change stream, or
// asks for them; it looks at who stands before them and lets a [watch.Judge] take the dead out.
//
// It knows nothing of guards and of managers: it sees its process through the interface [Process].
package queue
