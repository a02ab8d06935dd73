//go:build !unix

package integration_test

// stop ends the test: no process can be stopped and resumed here.
func (r *relative) stop() { r.t.Skip("no process can be stopped here") }

func (r *relative) resume() {}
