package dashboard

import (
	"embed"
	"net/http"
)

//go:embed assets
var assetFiles embed.FS

// assets serves the style sheet and the script from the binary, so they match its pages.
func assets() http.Handler {
	files := http.FileServerFS(assetFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=300")
		files.ServeHTTP(w, r)
	})
}
