package live

import (
	"fmt"
	"net/http"
	"strings"

	"rsc.io/qr"
)

// quiet is the light border that readers of a QR code need, in modules.
const quiet = 4

// qrCode is the QR code of a text as a picture, dark on light also on a dark page.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("make a QR code of %q: %w", text, err)
	}
	var dark strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&dark, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	const picture = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[1]d" shape-rendering="crispEdges">` +
		`<path fill="#fff" d="M0 0h%[1]dv%[1]dh-%[1]dz"/><path fill="#000" d="%[2]s"/></svg>`
	return fmt.Sprintf(picture, code.Size+2*quiet, dark.String()), nil
}

// classCode is the code of the address at which phones buy.
func (h *Handler) classCode(w http.ResponseWriter, r *http.Request) {
	if h.session.at == "" {
		http.NotFound(w, r)
		return
	}
	picture, err := qrCode(h.session.at)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write([]byte(picture)) // the reader may have gone
}
