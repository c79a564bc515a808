// Command app is the app of this example: a web server that says one thing, and knows
// nothing of Dapr or Isthmus.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "where to listen, host:port")
	says := flag.String("says", "hello", "the answer to every call")
	flag.Parse()
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, *says) })
	http.HandleFunc("/dapr/", http.NotFound) // Dapr asks for subscriptions and actors; there are none
	log.Fatal(http.ListenAndServe(*listen, nil))
}
