package failpoint_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/failpoint"
)

func TestAFaultIsReadAsItIsWritten(t *testing.T) {
	for text, fault := range map[string]failpoint.Fault{
		`{"do":"hold","goods_id":7,"strategy":"naive","deaf":true,"times":3,"reached":2,"for":"1.5s"}`: {
			Do: failpoint.Hold, GoodsID: 7, Strategy: "naive", For: 1500 * time.Millisecond, IgnoreCancel: true, Times: 3, Reached: 2,
		},
		`{"do":"crash","goods_id":0,"strategy":"","deaf":false,"times":1,"reached":0}`: {Do: failpoint.Crash, Times: 1},
	} {
		if content, err := json.Marshal(fault); err != nil || string(content) != text {
			t.Errorf("%+v is written as %s (%v), want %s", fault, content, err, text)
		}
		var read failpoint.Fault
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != fault {
			t.Errorf("%s is read as %+v (%v), want %+v", text, read, err, fault)
		}
	}
	for _, text := range []string{`{"for":"long"}`, `{"for":5}`, `[]`} {
		if err := json.Unmarshal([]byte(text), new(failpoint.Fault)); err == nil {
			t.Errorf("%s is read as a fault", text)
		}
	}
}
