package tracing

import "testing"

func TestAStatementIsCalledByItsVerbAndItsTable(t *testing.T) {
	for query, want := range map[string]string{
		"UPDATE tb_goods_stock SET stock = ?":                             "UPDATE tb_goods_stock",
		"INSERT INTO `tb_stock_ledger` (`user_id`) VALUES ('a name')":     "INSERT tb_stock_ledger",
		"SELECT a, (SELECT MAX(b) FROM inner_one) FROM outer_one AS o":    "SELECT outer_one",
		"SELECT\n\t\tstock\n\t\tFROM tb_goods_stock WHERE goods_id = 'x'": "SELECT tb_goods_stock",
		"SELECT a FROM (SELECT b FROM c) AS d":                            "SELECT",
		"SELECT GET_LOCK('a name', 1)":                                    "SELECT",
		"DO RELEASE_LOCK('a name')":                                       "DO",
		"":                                                                "commit",
	} {
		if got := summary("sql.tx.commit", query); got != want {
			t.Errorf("%q is called %q, want %q", query, got, want)
		}
	}
}
