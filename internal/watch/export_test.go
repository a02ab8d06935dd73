package watch

func (j *Judge) Observed() int {
	j.seen.mu.Lock()
	defer j.seen.mu.Unlock()
	return len(j.seen.seen)
}
