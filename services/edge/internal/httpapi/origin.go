package httpapi

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

const (
	// exposed are the headers of answers that a page in a browser may read.
	exposed = headerRequestID + ", " + headerCharged + ", " + headerRetry + ", Request-Id"
	// preflightSeconds is how long a browser may remember that it may ask.
	preflightSeconds = "86400"
)

// origin tells browsers which pages may use the API: any page the list of
// models, pages of the configured origins everything. Others get no permission,
// which is for browsers to enforce; keys are checked all the same.
func (s *Server) origin(c *fiber.Ctx) error {
	s.strangers.Delete(&c.Request().Header) // whose body was small enough
	from := c.Get(fiber.HeaderOrigin)
	if from == "" {
		return c.Next()
	}
	switch {
	case listing(c.Path()):
		c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	case slices.Contains(s.cfg.Origins, "*"), slices.Contains(s.cfg.Origins, from):
		c.Set(fiber.HeaderAccessControlAllowOrigin, from)
		c.Set(fiber.HeaderVary, fiber.HeaderOrigin)
	default:
		return c.Next()
	}
	c.Set(fiber.HeaderAccessControlExposeHeaders, exposed)
	method := c.Get(fiber.HeaderAccessControlRequestMethod)
	if c.Method() != fiber.MethodOptions || !s.served(method, c.Path()) {
		return c.Next()
	}
	if asked := c.Get(fiber.HeaderAccessControlRequestHeaders); len(asked) <= askedMax && isList(asked) {
		c.Set(fiber.HeaderAccessControlAllowHeaders, asked)
	}
	c.Set(fiber.HeaderAccessControlAllowMethods, method)
	c.Set(fiber.HeaderAccessControlMaxAge, preflightSeconds)
	c.Status(fiber.StatusNoContent)
	return nil
}

// listing tells whether a path belongs to the list of models.
func listing(path string) bool {
	return path == "/v1/models" || strings.HasPrefix(path, "/v1/models/")
}

// served tells whether there is such a route.
func (s *Server) served(method, path string) bool {
	if method == fiber.MethodGet {
		return listing(path)
	}
	return s.posts[method+" "+path]
}

// isList tells whether a text is a list of header names.
func isList(text string) bool {
	return strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ") == ""
}
