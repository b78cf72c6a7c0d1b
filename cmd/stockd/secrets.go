package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/reload"
)

const (
	ownerReads    fs.FileMode = 0o400
	everyoneReads fs.FileMode = 0o444
	ownerWrites   fs.FileMode = 0o644
)

func secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets [FILE[=PREFIX]]...",
		Short: "Write a random secret into each file that does not exist yet",
		Long: "Write a random secret, after its prefix, into each file that does not exist yet, and with --jwks a key that\n" +
			"signs tokens of buyers. A file that exists keeps its content, so that this may be run at every start.",
		Example: "  stockd secrets admin.token\n" +
			"  stockd secrets admin.token --jwks                       # and keys.json, with its private key in buyers.key\n" +
			"  stockd secrets zookeeper.auth=stockd: --world-readable  # a random password after stockd:",
	}
	var keys keyPair
	jwks := cmd.Flags().Bool("jwks", false, "write a private key that signs tokens of buyers, and the JWKS with its public key, for buyer.jwks_file")
	cmd.Flags().StringVar(&keys.public, "jwks-file", "keys.json", "file of the JWKS")
	cmd.Flags().StringVar(&keys.private, "key-file", defaultKeyFile, "file of the private key, which only its owner may read; no replica needs it")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 && !*jwks {
			return cli.UsageError{Err: errors.New("name the files: stockd secrets FILE[=PREFIX], or --jwks")}
		}
		for _, arg := range args {
			if path, _, _ := strings.Cut(arg, "="); *jwks && (path == keys.public || path == keys.private) {
				return cli.UsageError{Err: fmt.Errorf("%s is a file of --jwks: name another one by --jwks-file or --key-file", path)}
			}
		}
		return nil
	}
	worldReadable := cmd.Flags().Bool("world-readable", false, "let every user read the files (mode 0444), where the folder keeps others out; only their owner may otherwise (0400)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mode := ownerReads
		if *worldReadable {
			mode = everyoneReads
		}
		for _, arg := range args {
			path, prefix, _ := strings.Cut(arg, "=")
			if err := writeOnce(cmd.OutOrStdout(), path, mode, func() ([]byte, error) {
				return []byte(prefix + rand.Text()), nil // no newline: an operator of Kubernetes sends a Secret as it is
			}); err != nil {
				return err
			}
		}
		if *jwks {
			return keys.write(cmd.OutOrStdout())
		}
		return nil
	}
	return cmd
}

// defaultKeyFile is the private key that signs tokens of buyers.
const defaultKeyFile = "buyers.key"

// keyPair are the files of a key that signs tokens of buyers.
type keyPair struct{ private, public string }

// write makes the public key from the private one, also where only that exists: a process may have
// died between the two. It makes no private key beside a JWKS that cannot have its public key.
func (k keyPair) write(out io.Writer) error {
	if _, err := os.Lstat(k.public); err == nil { // looked at first: another process writes it last
		if _, err := os.Lstat(k.private); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--jwks-file %s exists, and its private key --key-file %s does not: name another file, or remove it", k.public, k.private)
		}
	}
	if err := writeOnce(out, k.private, ownerReads, buyer.GenerateKey); err != nil {
		return err
	}
	return writeOnce(out, k.public, ownerWrites, func() ([]byte, error) {
		private, err := reload.ReadText(k.private)
		if err != nil {
			return nil, err
		}
		return buyer.PublicKeys(private)
	})
}

// writeOnce writes a file that does not exist yet, and reports whether it did.
func writeOnce(out io.Writer, path string, mode fs.FileMode, content func() ([]byte, error)) error {
	done := "written"
	err := writeSecret(path, mode, content)
	if errors.Is(err, fs.ErrExist) {
		done, err = "kept", nil
	}
	if err != nil {
		return fmt.Errorf("write the secret %s: %w", path, err)
	}
	fmt.Fprintf(out, "%s: %s\n", path, done) //nolint:errcheck // the files are what counts
	return nil
}

// writeSecret returns fs.ErrExist where there is such a file. The file appears with its
// whole content: a process that dies in between leaves none that is empty.
func writeSecret(path string, mode fs.FileMode, content func() ([]byte, error)) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	text, err := content()
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".secret-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.Write(text)
	if err := errors.Join(err, draft.Chmod(mode), draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Link(draft.Name(), path) // unlike a rename, it replaces no file
}
