package config

import (
	"net"
	"strings"

	"github.com/stockd/stockd/internal/admintoken"
)

// Tokens are the sources of the tokens of the admin API.
func (a Admin) Tokens() admintoken.Options {
	return admintoken.Options{Token: a.Token.Reveal(), TokenFile: a.TokenFile, TokensFile: a.TokensFile, Strict: a.Required}
}

// HostNames are the names that the admin API answers to, in lower case.
func (a Admin) HostNames() []string {
	names := make([]string, 0, 1+len(a.Hosts))
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	for _, name := range a.Hosts {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	return names
}
