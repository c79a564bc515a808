// Command sdk-workflow is an app with workflows, by the library of Dapr's SDK for Go. One calls
// another app by service invocation, from its activities. The other has an activity run by another
// app.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/dapr/durabletask-go/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// payments is the app that is called.
const payments = "payments"

// steps is how many activities a workflow has.
const steps = 20

// again is how an activity is repeated that fails: until the callee is back.
var again = workflow.WithActivityRetryPolicy(&workflow.RetryPolicy{
	MaxAttempts: 1000, InitialRetryInterval: 200 * time.Millisecond, BackoffCoefficient: 1,
})

// invoking charges by activities of its own, each with a key that is the same whenever it runs.
func invoking(ctx *workflow.WorkflowContext) (any, error) {
	for i := range steps {
		if err := ctx.CallActivity(charge, workflow.WithActivityInput(fmt.Sprintf("%s-%d", ctx.ID(), i)), again).Await(nil); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// remote has an activity of the other app charge.
func remote(ctx *workflow.WorkflowContext) (any, error) {
	return nil, ctx.CallActivity(charge, workflow.WithActivityInput(ctx.ID()), workflow.WithActivityAppID(payments)).Await(nil)
}

// charge calls the other app with a key.
func charge(ctx workflow.ActivityContext) (any, error) {
	var key string
	if err := ctx.GetInput(&key); err != nil {
		return nil, err
	}
	url := "http://127.0.0.1:" + os.Getenv("DAPR_HTTP_PORT") + "/v1.0/invoke/" + payments + "/method/charge"
	req, err := http.NewRequestWithContext(ctx.Context(), http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return nil, err
}

func run() error {
	conn, err := grpc.NewClient("127.0.0.1:"+os.Getenv("DAPR_GRPC_PORT"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	known := workflow.NewRegistry()
	for _, err := range []error{known.AddWorkflow(invoking), known.AddWorkflow(remote), known.AddActivity(charge)} {
		if err != nil {
			return err
		}
	}
	client := workflow.NewClient(conn)
	go func() {
		for client.StartWorker(context.Background(), known) != nil { // the sidecar is not there yet
			time.Sleep(200 * time.Millisecond)
		}
	}()
	http.HandleFunc("POST /workflows/{name}/{id}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := client.ScheduleWorkflow(r.Context(), r.PathValue("name"), workflow.WithInstanceID(r.PathValue("id"))); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	http.HandleFunc("GET /workflows/{id}", func(w http.ResponseWriter, r *http.Request) {
		state, err := client.FetchWorkflowMetadata(r.Context(), r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, state.String()) // the caller has gone when this fails
	})
	return http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
