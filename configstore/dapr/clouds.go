//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/jackc/pgx/v5"

	awsauth "github.com/dapr/components-contrib/common/aws/auth"
	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/configuration/azure/appconfig"
	"github.com/dapr/components-contrib/configuration/kubernetes"
)

// withClouds tells whether this build has the clients of clouds.
const withClouds = true

func newStore(kind string, b *daprLogger) configuration.Store {
	if kind == kindKubernetes {
		return kubernetes.NewKubernetesConfigMapStore(b)
	}
	return appconfig.NewAzureAppConfigurationStore(b)
}

// useAWS has each connection log on by a token of AWS, as Dapr's store does.
func useAWS(ctx context.Context, s settings, p *postgres) error {
	options, err := p.auth.BuildAwsIamOptions(s.logger(), maps.Clone(s.component.properties))
	if err != nil {
		return err
	}
	provider, err := awsauth.NewCredentialProvider(ctx, *options, nil)
	if err != nil {
		return err
	}
	p.pool.MaxConnLifetime = 10 * time.Minute
	p.pool.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		token, err := auth.BuildAuthToken(ctx, fmt.Sprintf("%s:%d", c.Host, c.Port), options.Region, c.User, provider)
		c.Password = token
		return err
	}
	return nil
}
