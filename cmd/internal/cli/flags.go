package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/nearest"
)

// respelt says what a flag must be, and which flag was meant where a key was spelt as in the file.
func respelt(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := invalid.GetFlag()
		if must := allowed(flag.Value.Type()); must != "" {
			return fmt.Errorf("--%s must be %s, not %q", flag.Name, must, invalid.GetValue())
		}
		return err
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			known = append(known, flag.Name)
		}
	})
	if meant := nearest.Of(config.FlagOf(unknown.GetSpecifiedName()), known); meant != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return err
}

// allowed says what a flag of a type may be.
func allowed(kind string) string {
	switch kind {
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number from 0 on"
	case "float64":
		return "a number"
	case "duration":
		return "a duration such as 5s or 250ms"
	case "bool":
		return "true or false"
	case "intSlice":
		return "whole numbers, separated by commas"
	default:
		return ""
	}
}

// checkFlags rejects, before a run, what would fail only in it or after it: an address of a
// server that is none, and a file that cannot be written.
func checkFlags(cmd *cobra.Command, _ []string) error {
	var errs []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Value.Type() != "string" || flag.Value.String() == "" {
			return
		}
		switch flag.Name {
		case "url", "admin-url":
			errs = append(errs, checkURL(flag))
		case "json", "chart":
			errs = append(errs, checkFile(flag))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return UsageError{Err: err}
	}
	return nil
}

func checkURL(flag *pflag.Flag) error {
	u, err := url.Parse(flag.Value.String())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		set := strconv.Quote(flag.Value.String())
		if strings.Contains(set, "@") {
			set = "what is set, which is not shown: it may hold a password"
		}
		return fmt.Errorf("--%s must be http:// or https:// with a host, such as http://127.0.0.1:8080, not %s", flag.Name, set)
	}
	return nil
}

func checkFile(flag *pflag.Flag) error {
	path := flag.Value.String()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("--%s must be a file, and %s is a folder", flag.Name, path)
	}
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("--%s: there is no folder %s", flag.Name, folder)
	}
	return nil
}
