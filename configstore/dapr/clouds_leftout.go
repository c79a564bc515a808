//go:build !(clouds || stablecomponents || allcomponents)

package dapr

import (
	"context"
	"errors"

	"github.com/dapr/components-contrib/configuration"
	"github.com/jackc/pgx/v5/pgxpool"
)

// withClouds tells whether this build has the clients of clouds.
const withClouds = false

// errLeftOut is never seen: checkComponent refuses such a component before it connects.
var errLeftOut = errors.New("this build has no clients of clouds")

func newStore(string, *daprLogger) configuration.Store { return nil }

func connectKubernetes(settings) (engine, error) { return nil, errLeftOut }

func connectAzure(context.Context, settings) (engine, error) { return nil, errLeftOut }

func checkCloud(component) error { return errLeftOut }

func useCloud(context.Context, settings, *pgxpool.Config) error { return errLeftOut }

func entraID(context.Context, component) (user, password string, err error) {
	return "", "", errLeftOut
}

func deniedByCloud(error) bool { return false }
