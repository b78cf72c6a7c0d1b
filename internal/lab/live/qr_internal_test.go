package live

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// modulesOf are the dark modules of a code as it is drawn, without its border.
func modulesOf(t *testing.T, picture string) (size int, dark map[[2]int]bool) {
	t.Helper()
	box := regexp.MustCompile(`viewBox="0 0 (\d+) (\d+)"`).FindStringSubmatch(picture)
	if box == nil || box[1] != box[2] {
		t.Fatalf("the picture is no square: %.200s", picture)
	}
	size, dark = number(t, box[1])-2*quiet, make(map[[2]int]bool)
	for _, at := range regexp.MustCompile(`M(\d+) (\d+)h1v1h-1z`).FindAllStringSubmatch(picture, -1) {
		dark[[2]int{number(t, at[1]) - quiet, number(t, at[2]) - quiet}] = true
	}
	return size, dark
}

func abs(n int) int { return max(n, -n) }

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The code has its three finders upright, inside of a light border: mirrored, or without it, few phones
// read it. Another text has another code.
func TestTheCodeOfTheClassIsUpright(t *testing.T) {
	const address = "http://192.168.1.20:8090/buy"
	picture, err := qrCode(address)
	if err != nil {
		t.Fatal(err)
	}
	size, dark := modulesOf(t, picture)
	finder := func(left, top int) bool {
		for i := range 7 * 7 {
			x, y := i%7, i/7
			ring := max(abs(x-3), abs(y-3)) // around the middle; the second one is light
			if dark[[2]int{left + x, top + y}] != (ring != 2) {
				return false
			}
		}
		return true
	}
	if !finder(0, 0) || !finder(size-7, 0) || !finder(0, size-7) || finder(size-7, size-7) {
		t.Errorf("the finders are not at the upper left, upper right and lower left of %d modules", size)
	}
	if !dark[[2]int{8, size - 8}] { // a module that is dark in every code, and not in a mirrored one
		t.Error("the dark module is not beside the lower left finder")
	}
	for at := range dark {
		if at[0] < 0 || at[1] < 0 || at[0] >= size || at[1] >= size {
			t.Fatalf("the module at %v is in the border", at)
		}
	}
	if other, err := qrCode(address + "2"); err != nil || other == picture {
		t.Errorf("another address has the same code (%v)", err)
	}
}

// A class has the code of its address, and a page without one has none.
func TestTheCodeIsOfTheAddressOfTheClass(t *testing.T) {
	server := desk(t)
	if status := ask(t, server, http.MethodGet, "/buy/code.svg").StatusCode; status != http.StatusNotFound {
		t.Errorf("without a class the code is answered with %d", status)
	}
	h, ok := server.Config.Handler.(*Handler)
	if !ok {
		t.Fatal("another handler serves")
	}
	h.session.at = "http://127.0.0.1:8090/buy"
	answer := ask(t, server, http.MethodGet, "/buy/code.svg")
	var text strings.Builder
	if _, err := io.Copy(&text, answer.Body); err != nil {
		t.Fatal(err)
	}
	want, err := qrCode(h.session.at)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "image/svg+xml" || text.String() != want {
		t.Errorf("status %d, type %q, %d bytes, want the code with %d (%v)", answer.StatusCode, answer.Header.Get("Content-Type"), text.Len(), len(want), err)
	}
}
