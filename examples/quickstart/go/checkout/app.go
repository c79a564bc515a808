// Command checkout sends orders by Dapr's SDK for Go.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/dapr/go-sdk/client"
)

func main() {
	dapr, err := client.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer dapr.Close()
	for id := 1; id <= 3; id++ {
		order := &client.DataContent{ContentType: "application/json", Data: fmt.Appendf(nil, `{"orderId":%d}`, id)}
		answer, err := dapr.InvokeMethodWithContent(context.Background(), "order-processor", "orders", "post", order)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("Order passed: %s\n", answer)
	}
}
