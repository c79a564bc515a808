// Command app is the app of the tests' pods. It says who it is, and calls other apps by its
// sidecar. As "app pause" it does nothing, as the container does that holds a pod's network.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) > 1 {
		<-end
		return
	}
	host, _ := os.Hostname()
	http.HandleFunc("/who", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("CLUSTER"), " ", host) })
	http.HandleFunc("/call/{app}", call)
	go func() { _ = http.ListenAndServe(":8080", nil) }()
	<-end
	time.Sleep(10 * time.Second) // the sidecar lets calls finish; apps that end before it lose them
}

// call passes on what another app says of itself.
func call(w http.ResponseWriter, r *http.Request) {
	url := "http://127.0.0.1:3500/v1.0/invoke/" + r.PathValue("app") + "/method/who"
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}
