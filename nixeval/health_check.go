package nixeval

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

// HealthCheck is one of `deployment.healthChecks`: one of HTTP, TCP and Command is set.
type HealthCheck struct {
	HTTP     *string  `json:"http"` // URL
	TCP      *string  `json:"tcp"`  // HOST:PORT
	Command  []string `json:"command"`
	From     string   `json:"from"`     // FromNode or FromHere
	Timeout  int      `json:"timeout"`  // in seconds, for all attempts together
	Interval int      `json:"interval"` // in seconds, between two attempts
}

// Values of HealthCheck.From.
const (
	FromNode = "node" // the check runs on the node, or through the connection to the node
	FromHere = "here" // the check runs on this computer
)

// Limit returns how long the check is repeated until it must have passed.
func (c HealthCheck) Limit() time.Duration { return time.Duration(c.Timeout) * time.Second }

const (
	maxURL          = 2000
	maxHealthChecks = 3600 // seconds, as in modules/deployment.nix
)

// check validates all options of the health check. An error begins with the name of the option, and name is the name of the check.
func (c HealthCheck) check(name string) error {
	if err := cmp.Or(checkText(name, maxTag), checkOne("http, tcp and command", c.HTTP != nil, c.TCP != nil, len(c.Command) > 0)); err != nil {
		return err
	}
	switch {
	case c.From != FromNode && c.From != FromHere:
		return fmt.Errorf("from: %q is not node or here", c.From)
	case c.Timeout < 1 || c.Timeout > maxHealthChecks:
		return fmt.Errorf("timeout: %d is not a number of seconds from 1 to %d", c.Timeout, maxHealthChecks)
	case c.Interval < 1 || c.Interval > maxHealthChecks:
		return fmt.Errorf("interval: %d is not a number of seconds from 1 to %d", c.Interval, maxHealthChecks)
	case c.TCP != nil:
		if err := checkAddress(*c.TCP); err != nil {
			return fmt.Errorf("tcp: %w", err)
		}
	case c.HTTP != nil:
		if err := checkURL(*c.HTTP); err != nil {
			return fmt.Errorf("http: %w", err)
		}
	}
	return nil
}

// checkAddress returns an error unless s is HOST:PORT or :PORT.
func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if number, portErr := strconv.Atoi(port); err != nil || portErr != nil || number < 1 || number > 65535 {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:5432, or :5432 for a port of the node", s)
	}
	return checkText(s, maxHostName+len(":65535"))
}

// checkURL returns an error unless s is a URL of HTTP or HTTPS. The error does not contain s, which may contain a password or a token.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the value is not a URL, such as http://127.0.0.1:8080/, or http://:8080/ for a port of the node")
	}
	if checkText(s, maxURL) != nil {
		return fmt.Errorf("the value is longer than %d bytes, or has a control, invisible or bidirectional character", maxURL)
	}
	return nil
}
