package live

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
)

const (
	// patience is how long a condition of the page may take on a machine that is busy.
	patience = 60 * time.Second
	isLive   = "document.getElementById('link').textContent === 'live'"
	back     = "!document.getElementById('player').hidden && (document.getElementById('back').click(), true)"
)

// openPage opens the page of a session without servers, whose state a test publishes. What the page
// posts is kept in the browser, and reaches no handler.
func openPage(t *testing.T, width int64) (b *browser.Browser, h *Handler, server *httptest.Server) {
	t.Helper()
	server = desk(t)
	h, ok := server.Config.Handler.(*Handler)
	if !ok {
		t.Fatal("another handler serves")
	}
	h.session.hub.look(func(state *State) {
		state.Servers, state.Machines = map[string]servers.Info{"database": {Name: "a database"}}, []Machine{}
		for _, name := range []string{"naive", "mutex"} {
			state.Strategies = append(state.Strategies, service.Description{Name: name, Available: true, Needs: []string{}})
		}
		began{Sale{Phase: Idle, Settings: defaults(), Modes: []Mode{}}}.apply(state)
	})
	b = browser.Open(t, 3*time.Minute)
	b.Show(t, server.URL+"/#token=secret", width, 1600, "light")
	b.Until(t, patience, isLive)
	browser.Evaluate[bool](t, b, `(window.posted = [], window.fetch = ((ask) => (path, how) => how?.method === 'POST' ? (posted.push(path), Promise.resolve(new Response('{}'))) : ask(path, how))(window.fetch), true)`)
	return b, h, server
}

func at(seconds float64) Millis { return Millis(1e12 + 1000*seconds) }

func publishSale(h *Handler, phase Phase, item int64, modes ...Mode) Sale {
	s := Sale{Phase: phase, Settings: defaults(), Item: item, Modes: modes}
	if phase == Ended {
		s.Verdict = &Verdict{Words: "consistent"}
		s.Verdict.Strategy, s.Verdict.Clean = "naive", true
	}
	h.session.hub.publish(s)
	return s
}

func TestATableOfAServerStaysWhereItWasScrolledTo(t *testing.T) {
	b, h, _ := openPage(t, 390)
	row := []string{strings.Repeat("wide", 60)}
	h.session.views.lenses = map[string]*lens{"database": {look: func(context.Context, int64) (View, error) {
		return View{Tables: []Table{{Title: "row", Head: []string{"text"}, Rows: [][]string{row}}}}, nil
	}}}
	b.Until(t, patience, "(document.getElementById('sees').scrollIntoView(), Boolean(document.querySelector('#view td')))")
	browser.Evaluate[bool](t, b, "(document.querySelector('#view .scroll').scrollLeft = 100, document.querySelector('#view .scroll').focus(), window.shown = document.querySelector('#view table'), true)")
	b.Until(t, patience, "document.querySelector('#view table') !== shown")
	if left := browser.Evaluate[float64](t, b, "document.querySelector('#view .scroll').scrollLeft"); left != 100 {
		t.Errorf("when the server has answered again the table is scrolled by %v, want 100", left)
	}
	if !browser.Evaluate[bool](t, b, "document.activeElement === document.querySelector('#view .scroll')") {
		t.Error("the table has lost the focus")
	}
}
