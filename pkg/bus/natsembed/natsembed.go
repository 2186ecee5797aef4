// Package natsembed runs a NATS server with JetStream inside this process, for
// the one binary and for tests. Clusters, accounts and permissions do not live
// here: production runs nats-server itself with the files under deploy/nats.
package natsembed

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/engy-ai/engy/pkg/fault"
)

const (
	startWait = 10 * time.Second
	// payloadBytesMax is nats-server's own default, which clusters keep too.
	payloadBytesMax = 1 << 20
	// pendingBytesMax bounds what waits for one slow client.
	pendingBytesMax = 256 << 20
	memoryBytesMax  = 1 << 30
	fileBytesMax    = 16 << 30
)

// Config says where the server keeps its streams and whether it listens.
type Config struct {
	// Dir holds the file streams.
	Dir string
	// Listen is a host and port, or empty for connections within the process
	// only.
	Listen string
	// Token is what clients must show; empty means that none is asked for.
	Token string
	Log   *slog.Logger
}

// Server is a running NATS server.
type Server struct {
	s     *server.Server
	token string
}

// Start runs a server and waits until it takes connections.
func Start(cfg Config) (*Server, error) {
	opts := &server.Options{
		ServerName: "engy", JetStream: true, StoreDir: cfg.Dir,
		DontListen: cfg.Listen == "", NoSigs: true, NoLog: true,
		MaxPayload: payloadBytesMax, MaxPending: pendingBytesMax,
		Authorization:      cfg.Token,
		JetStreamMaxMemory: memoryBytesMax, JetStreamMaxStore: fileBytesMax,
	}
	if cfg.Listen != "" {
		host, port, err := net.SplitHostPort(cfg.Listen)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, "bus address", err)
		}
		if opts.Host = host; host == "" {
			opts.Host = "0.0.0.0"
		}
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, fault.Wrap(fault.Invalid, "bus address", err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	go s.Start()
	if !s.ReadyForConnections(startWait) {
		s.Shutdown()
		return nil, fault.New(fault.Unavailable, "nats server did not start; is its port or directory in use?")
	}
	if cfg.Log != nil {
		cfg.Log.Info("bus started", "address", (&Server{s: s}).URL(), "dir", cfg.Dir)
	}
	return &Server{s: s, token: cfg.Token}, nil
}

// InProcess gives connections without a socket.
func (s *Server) InProcess() nats.InProcessConnProvider { return s.s }

// URL is the address that clients use, the token included; empty when the server
// does not listen.
func (s *Server) URL() string {
	a := s.s.Addr()
	if a == nil {
		return ""
	}
	u := url.URL{Scheme: "nats", Host: a.String()}
	if s.token != "" {
		u.User = url.User(s.token)
	}
	return u.String()
}

// Close stops the server and waits until it is gone.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// Subscriptions counts the subscriptions of all clients, for tests that look
// for leaks.
func (s *Server) Subscriptions() int { return int(s.s.NumSubscriptions()) }
