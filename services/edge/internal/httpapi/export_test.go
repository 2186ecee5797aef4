package httpapi

// Large tells how many bytes of large bodies are under way.
func (s *Server) Large() int64 {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return s.gate.large
}
