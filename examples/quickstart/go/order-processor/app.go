// Command order-processor takes orders by Dapr's SDK for Go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/dapr/go-sdk/service/common"
	daprd "github.com/dapr/go-sdk/service/http"
)

func main() {
	service := daprd.NewService("127.0.0.1:" + os.Getenv("APP_PORT"))
	err := service.AddServiceInvocationHandler("/orders", func(_ context.Context, in *common.InvocationEvent) (*common.Content, error) {
		fmt.Printf("Order received: %s\n", in.Data)
		return &common.Content{Data: in.Data, ContentType: in.ContentType}, nil
	})
	if err == nil {
		err = service.Start()
	}
	log.Fatal(err)
}
