package zk_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }
