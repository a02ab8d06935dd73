//go:build !unix

package integration_test

// stop skips the test, because this system cannot stop and resume a process.
func (r *relative) stop() { r.t.Skip("no process can be stopped here") }

func (r *relative) resume() {}
