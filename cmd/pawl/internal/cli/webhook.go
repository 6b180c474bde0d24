package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/transport/webhook"
)

// secretVariable holds the secret, unless a flag names another source. No flag takes the secret
// itself, because other users of the machine can read command lines.
const secretVariable = "PAWL_WEBHOOK_SECRET"

// mostInput bounds the octets read from a file or stdin. It is the largest body that a verifier can
// be configured to accept.
const mostInput = 16 << 20

func newWebhook() *cobra.Command {
	cmd := group("webhook", "Sign, send and verify webhooks; no database needed")
	cmd.AddCommand(newWebhookSign(), newWebhookSend(), newWebhookVerify())
	return cmd
}

// schemes holds the schemes of package webhook by name, and whether their id is in a header.
var schemes = map[string]struct {
	make     func(...webhook.Secret) webhook.Scheme
	idHeader bool
}{
	"standard": {webhook.StandardWebhooks, true},
	"svix":     {webhook.Svix, true},
	"stripe":   {webhook.Stripe, false},
	"mux":      {webhook.Mux, false},
	"github":   {webhook.GitHub, true},
	"slack":    {webhook.Slack, false},
	"shopify":  {webhook.Shopify, true},
}

const schemeHelp = `Schemes: standard (Standard Webhooks, v1 and v1a), svix, stripe, mux, github, slack, shopify, and hmac, which you describe with
--signature-header, --prefix, --hash, --encoding, --timestamp-header, --id-header and --signed.

The secret comes from PAWL_WEBHOOK_SECRET, another variable (--secret-env) or a file (--secret-file), never from the command line. Both flags
may be repeated while a secret is rotated.`

type schemeFlags struct {
	name        string
	envs, files []string
	hmac        webhook.HMACConfig
	hash        string
	encoding    string
}

func (f *schemeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "scheme", "", "how the sender signs; required")
	flags.StringArrayVar(&f.envs, "secret-env", nil, "variable that holds a secret (default "+secretVariable+")")
	flags.StringArrayVar(&f.files, "secret-file", nil, "file that holds a secret")
	flags.StringVar(&f.hmac.Header, "signature-header", "", "hmac: header of the signature; required")
	flags.StringVar(&f.hmac.Prefix, "prefix", "", "hmac: text before the signature, as in sha256=")
	flags.StringVar(&f.hash, "hash", "", "hmac: sha256 or sha512 (default sha256)")
	flags.StringVar(&f.encoding, "encoding", "", "hmac: hex or base64 (default hex)")
	flags.StringVar(&f.hmac.TimestampHeader, "timestamp-header", "", "hmac: header of the timestamp, which is signed")
	flags.StringVar(&f.hmac.IDHeader, "id-header", "", "hmac: header of the id")
	flags.StringVar(&f.hmac.Signed, "signed", "", "hmac: the text that is signed (default {timestamp}.{body}, or {body} without a timestamp)")
}

// hmacFlags are valid only with --scheme hmac.
var hmacFlags = []string{"signature-header", "prefix", "hash", "encoding", "timestamp-header", "id-header", "signed"}

func (f *schemeFlags) scheme(cmd *cobra.Command) (webhook.Scheme, error) {
	known, found := schemes[f.name]
	if !found && f.name != "hmac" {
		if f.name == "" {
			return nil, misused(cmd, "the scheme is missing", "pass --scheme, one of: "+schemeNames())
		}
		return nil, misused(cmd, fmt.Sprintf("unknown scheme %q", f.name), "use one of: "+schemeNames())
	}
	if found {
		for _, name := range hmacFlags {
			if cmd.Flags().Changed(name) {
				return nil, misused(cmd, "--"+name+" describes --scheme hmac, not "+f.name, "leave it out")
			}
		}
	}
	secrets, err := f.secrets(cmd)
	if err != nil {
		return nil, err
	}
	if found {
		return known.make(secrets...), nil
	}
	f.hmac.Hash, f.hmac.Encoding = webhook.Hash(f.hash), webhook.Encoding(f.encoding)
	return webhook.HMAC(f.hmac, secrets...), nil
}

func schemeNames() string {
	names := []string{"hmac"}
	for name := range schemes {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// secrets reads the secrets and names them after their sources.
func (f *schemeFlags) secrets(cmd *cobra.Command) (all []webhook.Secret, err error) {
	if len(f.envs)+len(f.files) == 0 {
		f.envs = []string{secretVariable}
	}
	for _, name := range f.envs {
		value := os.Getenv(name)
		if value == "" {
			return nil, misused(cmd, fmt.Sprintf("the secret is missing: the variable %q is not set or empty", name), "set it, or pass --secret-file FILE")
		}
		all = append(all, webhook.Secret{Name: "env " + name, Value: value})
	}
	for _, name := range f.files {
		value, err := readInput(cmd, "--secret-file", name)
		if err != nil {
			return nil, err
		}
		all = append(all, webhook.Secret{Name: "file " + name, Value: strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")})
	}
	return all, nil
}

// readInput reads a file, or stdin for "-".
func readInput(cmd *cobra.Command, flag, name string) ([]byte, error) {
	from := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, misused(cmd, fmt.Sprintf("%s %q: %s", flag, name, fileCause(err)), "name a file that can be read")
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, mostInput+1))
	switch {
	case err != nil:
		return nil, misused(cmd, fmt.Sprintf("%s %q: %s", flag, name, fileCause(err)), "name a file that can be read")
	case len(text) > mostInput:
		return nil, misused(cmd, fmt.Sprintf("%s %q has more than %d octets", flag, name, mostInput), "no webhook is that large")
	}
	return text, nil
}

func fileCause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// readTime reads seconds since 1970 or RFC 3339; "" is the time when it is asked for.
func readTime(cmd *cobra.Command, text string) (func() time.Time, error) {
	if text == "" {
		return time.Now, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if seconds, wrong := strconv.ParseInt(text, 10, 64); wrong == nil && seconds < 1e11 {
		at, err = time.Unix(seconds, 0), nil
	}
	if err != nil || at.Unix() <= 0 {
		return nil, misused(cmd, fmt.Sprintf("--at %q is not a time after 1970", text), "write seconds since 1970, or as in 2026-11-21T18:00:00Z")
	}
	return func() time.Time { return at }, nil
}

type deliveryFlags struct {
	schemeFlags
	id, at, body string
}

func (f *deliveryFlags) add(cmd *cobra.Command) {
	f.schemeFlags.add(cmd)
	cmd.Flags().StringVar(&f.id, "id", "", "id of the delivery (default a random one, where a header carries it)")
	cmd.Flags().StringVar(&f.at, "at", "", "time to sign, seconds since 1970 or RFC 3339 (default now)")
	cmd.Flags().StringVar(&f.body, "body", "-", "file of the body; - is stdin")
}

// A delivery is ready to be signed, once or several times.
type delivery struct {
	scheme webhook.Scheme
	id     string
	at     func() time.Time
	body   []byte
}

func (d delivery) sign() (http.Header, error) { return d.scheme.Sign(d.id, d.at(), d.body) }

func (f *deliveryFlags) delivery(cmd *cobra.Command) (d delivery, err error) {
	if d.scheme, err = f.scheme(cmd); err != nil {
		return delivery{}, err
	}
	if d.at, err = readTime(cmd, f.at); err != nil {
		return delivery{}, err
	}
	if d.id = f.id; d.id == "" && (schemes[f.name].idHeader || f.hmac.IDHeader != "") {
		d.id = "msg_" + rand.Text()
	}
	if d.body, err = readInput(cmd, "--body", f.body); err != nil {
		return delivery{}, err
	}
	if len(d.body) == 0 {
		return delivery{}, misused(cmd, "the body is empty", "write it to stdin, or pass --body FILE")
	}
	return d, nil
}
