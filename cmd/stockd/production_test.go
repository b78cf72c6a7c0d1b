package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-sql-driver/mysql"
	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

const production = "../../configs/production.yaml"

// believing has a replica in production believe what requests say of their buyers, as often and as much as
// they like.
func believing(flags ...string) []string {
	return append([]string{
		"--config", production, "--http-drain-delay=0s", "--buyer-from=request", "--buyer-required=false",
		"--deduct-per-user=0", "--limit-user-rate=0", "--limit-address-rate=0",
	}, flags...)
}

// The file for a shop rejects what may oversell, and says so: also where requests may
// choose.
func TestProductionRefusesWhatOversells(t *testing.T) {
	r := startReplica(t, believing("--deduct-choose=true")...)
	r.Sells(t, "in production")
	list := must.Get(r.Strategies(t.Context()))(t)
	unnoticed := []string{"redis-setnx", "redis-setnx-ttl", "redis-setnx-owner", "redis-getset"}
	rejected := 0
	for i, entry := range strategy.Registry() {
		got, fenced := r.Buy(t, "goods_id=1&strategy="+entry.Name), slices.Contains(unnoticed, entry.Name)
		if entry.Guarantees.ExclusiveAcrossReplicas && !fenced {
			if got.Kind == "strategy-refused" && !strings.Contains(got.Text, "is not configured") {
				t.Errorf("%s is rejected: %s", entry.Name, got.Text)
			}
			continue
		}
		rejected++
		if got.Status != http.StatusForbidden || got.Kind != "strategy-refused" {
			t.Errorf("%s is answered with %d %s", entry.Name, got.Status, got.Text)
		}
		if list[i].Name != entry.Name || list[i].Available || list[i].Note == "" || list[i].Enabled != fenced || list[i].RequiresFence != fenced {
			t.Errorf("%s is described as %+v", entry.Name, list[i])
		}
		got = r.Buy(t, "goods_id=1&fence=true&strategy="+entry.Name)
		should.Be(t, strings.Contains(got.Text, "redis is not configured"), fenced, entry.Name, "with a fence needs Redis", got.Status, got.Text)
	}
	should.Be(t, rejected, 7+len(unnoticed), "strategies are rejected", unnoticed)
	got := cmdtest.Do(r.owners(t, http.MethodPost, "/lab/faults", cmdtest.Token))
	should.Be(t, got.Status, http.StatusNotFound, "the lab answers", got.Text)
}

// An anonymous client of a shop buys, and neither chooses how nor learns more.
func TestProductionLetsNoClientChoose(t *testing.T) {
	r := startReplica(t, believing()...)
	if !r.Log.Contains("requests may not choose a strategy") {
		t.Error("the log does not tell that requests may not choose")
	}
	for query, want := range map[string]string{
		"":                           "",
		"&strategy=sql-version-lock": "choice-refused",
	} {
		got := r.Buy(t, "goods_id=1"+query)
		if got.Kind != want || (want == "") != (got.Status == http.StatusOK) {
			t.Errorf("%q is answered with %d %s, want %q", query, got.Status, got.Text, want)
		}
		if strings.Contains(got.Text, "remaining") || got.Header.Get(handler.ReplicaHeader) != "" {
			t.Errorf("%q is answered with %v %s", query, got.Header, got.Text)
		}
	}
	got := cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/goods/1/audit"))
	should.Be(t, got.Kind, "not-found", "the audit is answered with", got.Status, got.Text)
}

func TestProductionRefusesToStartWithoutWhatItNeeds(t *testing.T) {
	const dsn = "--database-dsn=stockd@tcp(127.0.0.1:1)/stockd"
	broken := filepath.Join(t.TempDir(), "keys.json")
	must.Do(t, os.WriteFile(broken, []byte(`{"keys": []}`), 0o600))
	for _, c := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"no token", []string{dsn}, []string{"production.yaml:", "admin.token"}},
		{"a weak token", []string{dsn, "--admin-token=aaaaaaaaaaaaaaaa"}, []string{"admin.token", "different characters"}},
		{"no database", []string{"--admin-token=" + cmdtest.Token}, []string{"database.dsn"}},
		{"no keys of buyers", []string{dsn, "--admin-token=" + cmdtest.Token}, []string{"production.yaml:", "buyer.from", "buyer.jwks_file"}},
		{"keys that are none", []string{dsn, "--admin-token=" + cmdtest.Token, "--buyer-jwks-file=" + broken}, []string{"buyer.jwks_file " + broken, "read keys"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, errOut := stockd(append([]string{"serve", "--config", production}, c.flags...)...)
			should.Be(t, status, cli.Usage, "the exit status", errOut)
			should.Contain(t, errOut, c.want...)
		})
	}
}

// signer signs tokens of buyers, and writes the file with its key.
type signer struct {
	kid     string
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	return signer{kid, public, private}
}

// writeKeys replaces the file.
func (s signer) writeKeys(t *testing.T, path string) {
	t.Helper()
	content := must.Get(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.public, KeyID: s.kid}}}))(t)
	must.Do(t, os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
}

func (s signer) token(t *testing.T, sub string) string {
	t.Helper()
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: s.private, KeyID: s.kid}}
	signs := must.Get(jose.NewSigner(key, nil))(t)
	return must.Get(jwt.Signed(signs).Claims(jwt.Claims{Subject: sub, Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute))}).Serialize())(t)
}

// A shop's buyers are who its tokens say, through the client of this repository.
func TestProductionSellsToVerifiedBuyers(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	first := newSigner(t, "first")
	first.writeKeys(t, keys)
	r := startReplica(t, "--config", production, "--http-drain-delay=0s", "--buyer-jwks-file="+keys)
	anonymous := client.Client{URL: r.URL}
	mine, other := anonymous, anonymous
	mine.BuyerToken, other.BuyerToken = first.token(t, "u-1"), first.token(t, "u-2")
	purchase := client.Purchase{GoodsID: 1, RequestID: "checkout"}
	sale := must.Get(mine.Deduct(t.Context(), purchase))(t)
	should.Be(t, must.Get(mine.OrderOf(t.Context(), client.Purchase{RequestID: "checkout"}))(t).OrderID, sale.OrderID, "the buyer finds")
	should.Reject(other.OrderOf(t.Context(), client.Purchase{RequestID: "checkout"}))(t, client.ErrUnknownOrder, "another buyer finds the order")
	should.Reject(anonymous.Deduct(t.Context(), purchase))(t, client.ErrUnauthorized)
}

// What stockd secrets writes is what the file for a shop wants, and the tokens of stockd buyer-token buy there.
func TestTokensToTryProductionWith(t *testing.T) {
	file, folder := must.Get(filepath.Abs(production))(t), t.TempDir()
	t.Chdir(folder)
	signed := func(args ...string) string {
		t.Helper()
		out := succeeds(t, append([]string{"buyer-token", "--config", file, "--buyer-jwks-file=keys.json"}, args...)...)
		should.Be(t, strings.Count(out, "\n"), 1, "lines of", out)
		return strings.TrimSpace(out)
	}
	succeeds(t, "secrets", "--jwks")
	r := startReplica(t, "--config", file, "--http-drain-delay=0s", "--buyer-jwks-file="+filepath.Join(folder, "keys.json"), "--buyer-audience=shop", "--limit-user-rate=0")
	buy := func(token string) error {
		_, err := client.Client{URL: r.URL, BuyerToken: token}.Deduct(t.Context(), client.Purchase{GoodsID: 1})
		return err
	}
	must.Do(t, buy(signed("--buyer=7", "--buyer-audience=shop", "--ttl=1m")))
	must.Do(t, buy(signed("--buyer=7", "--buyer-audience=shop", "--goods=1")))
	if err := buy(signed("--buyer=7", "--buyer-audience=shop", "--goods=2")); err == nil {
		t.Error("a token for another item buys this one")
	}
}

// container is what a manifest of the chart starts.
type container struct {
	Name string
	Args []string
	Env  []struct{ Name, Value string }
}

// with replaces in its arguments and variables what is another here than in a cluster.
func (c container) with(here *strings.Replacer) (args, env []string) {
	for _, arg := range c.Args {
		args = append(args, here.Replace(arg))
	}
	for _, variable := range c.Env {
		if variable.Value != "" { // another one has the name of its pod
			env = append(env, variable.Name+"="+here.Replace(variable.Value))
		}
	}
	return args, env
}

// chartContainers are those of the manifests that the chart makes for a shop, by their names.
func chartContainers(t *testing.T) map[string]container {
	t.Helper()
	content := must.Get(os.ReadFile("../../deploy/helm/testdata/shop.golden.yaml"))(t)
	type pod struct {
		InitContainers []container `yaml:"initContainers"`
		Containers     []container
	}
	all := make(map[string]container)
	for manifests := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var manifest struct {
			Spec struct {
				pod      `yaml:",inline"`
				Template struct{ Spec pod }
			}
		}
		err := manifests.Decode(&manifest)
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Do(t, err)
		of, template := manifest.Spec.pod, manifest.Spec.Template.Spec
		for _, c := range slices.Concat(of.InitContainers, of.Containers, template.Containers) {
			all[c.Name] = c
		}
	}
}

// What the manifests of the chart start does what it is there for: the migration, a replica on the
// migrated schema as a user that may not change it, and the sale of helm test.
func TestWhatTheChartStartsSells(t *testing.T) {
	cmdtest.NeedDatabase(t, servers.MariaDB)
	d := must.Get(servers.StartDatabase(t.Context(), labtest.StartSupervisor(t), servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Volatile: true}))(t)
	t.Cleanup(func() { must.Do(t, d.Close(context.WithoutCancel(t.Context()))) })
	own, shop, secrets := seller(t, d), newSigner(t, "shop"), t.TempDir()
	shop.writeKeys(t, filepath.Join(secrets, "buyer-keys.json"))
	for file, secret := range map[string]string{
		"admin-token": cmdtest.Token, "database-password": own.Password, "owner-password": d.Password, "test-buyer.jwt": shop.token(t, "helm-test"),
	} {
		must.Do(t, os.WriteFile(filepath.Join(secrets, file), []byte(secret), 0o600))
	}
	all := chartContainers(t)
	here := strings.NewReplacer("/run/secrets/stockd", secrets, "/etc/stockd/stockd.yaml", production,
		"shop@tcp(db:3306)/shop", own.DSN, "owner@tcp(db:3306)/shop", d.DSN)
	runChartCommand(t, all["migrate"], here)

	args, env := all["stockd"].with(here)
	// The test's own token is in a variable, and so is its kind of database.
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "STOCKD_ADMIN_TOKEN_FILE=") })
	r := startReplicaWith(t, append(env, "STOCKD_DATABASE_DRIVER=mysql"), append(args[1:], "--http-drain-delay=0s")...)

	here = strings.NewReplacer("/run/secrets/stockd", secrets, "http://shop-stockd-admin:8081", r.AdminURL, "http://shop-stockd:80", r.URL)
	for range 2 { // helm test may be run again
		runChartCommand(t, all["stock"], here)
		runChartCommand(t, all["buy"], here)
	}
	deniesTheSchema(t, own)
	if audit, err := labtest.Open(t, d, "auditor").Audit(t.Context(), 999_999_999); err != nil || audit.Sold != 2 || audit.Stock != 8 || !audit.Clean {
		t.Errorf("the audit is %+v, %v; want 2 of 10 sold", audit, err)
	}
}

// runChartCommand runs what a container runs, to its end.
func runChartCommand(t *testing.T, c container, here *strings.Replacer) {
	t.Helper()
	args, env := c.with(here)
	if len(args) == 0 {
		t.Fatal("the chart does not have it")
	}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	succeeds(t, args...)
}

// documentedGrants are what docs/production.md has the user of a replica granted in its database.
func documentedGrants(t *testing.T) string {
	t.Helper()
	content := must.Get(os.ReadFile("../../docs/production.md"))(t)
	granted := regexp.MustCompile(`GRANT ([A-Z, ]+) ON shop\.\* TO shop@`).FindSubmatch(content)
	if granted == nil {
		t.Fatal("docs/production.md grants nothing")
	}
	return string(granted[1])
}

// seller is the database for a user that has the documented rights and no other.
func seller(t *testing.T, d *servers.Database) *servers.Database {
	t.Helper()
	db, c := labtest.Connect(t, d)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	s := must.Get(d.With(func(to *mysql.Config) { to.User = "seller" }))(t)
	s.Password = rand.Text()
	for _, statement := range []string{
		fmt.Sprintf("CREATE USER 'seller'@'127.0.0.1' IDENTIFIED BY '%s'", s.Password),
		fmt.Sprintf("GRANT %s ON %s.* TO 'seller'@'127.0.0.1'", documentedGrants(t), c.DBName),
	} {
		must.Get(db.ExecContext(t.Context(), statement))(t)
	}
	return s
}

// deniesTheSchema tries what a replica that was taken over would.
func deniesTheSchema(t *testing.T, own *servers.Database) {
	t.Helper()
	db, _ := labtest.Connect(t, own)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	for _, statement := range []string{
		"DROP TABLE tb_stock_ledger",
		"TRUNCATE TABLE tb_stock_ledger",
		"ALTER TABLE tb_goods_stock ADD COLUMN x INT",
		"CREATE TABLE x (id INT)",
		"CREATE VIEW x AS SELECT 1",
		"CREATE PROCEDURE x() SELECT 1",
		"DROP PROCEDURE stockd_sell",
		"GRANT SELECT ON stockd.* TO 'seller'@'127.0.0.1'",
		"CREATE USER 'other'@'127.0.0.1'",
		"SET GLOBAL max_connections = 10",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		if denied, ok := errors.AsType[*mysql.MySQLError](err); !ok || !slices.Contains([]uint16{1044, 1142, 1227, 1370}, denied.Number) {
			t.Errorf("%s: %v, want it denied", statement, err)
		}
	}
}
