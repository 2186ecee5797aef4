package offer

// Doubts tells whether a worker is about to be probed, or being probed.
func (d *Desk) Doubts(worker string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.suspect[worker]
}
