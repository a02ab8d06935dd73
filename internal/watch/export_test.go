package watch

// Observed returns the number of subjects that a Judge observes.
func (j *Judge) Observed() int {
	j.seen.mu.Lock()
	defer j.seen.mu.Unlock()
	return len(j.seen.seen)
}
