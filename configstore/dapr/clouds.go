//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgauth "github.com/dapr/components-contrib/common/authentication/postgresql"
	awsauth "github.com/dapr/components-contrib/common/aws/auth"
	contrib "github.com/dapr/components-contrib/common/component/redis"
	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/configuration/azure/appconfig"
	"github.com/dapr/components-contrib/configuration/kubernetes"
	kit "github.com/dapr/kit/metadata"
)

// withClouds tells whether this build has the clients of clouds.
const withClouds = true

func newStore(kind string, b *daprLogger) configuration.Store {
	if kind == kindKubernetes {
		return kubernetes.NewKubernetesConfigMapStore(b)
	}
	return appconfig.NewAzureAppConfigurationStore(b)
}

// readCloud is what Dapr's store reads of clouds.
func readCloud(c component) (m pgauth.PostgresAuthMetadata, err error) {
	properties := maps.Clone(c.properties)
	if err = kit.DecodeMetadata(properties, &m); err == nil {
		err = m.InitWithMetadata(properties, pgauth.InitWithMetadataOpts{AzureADEnabled: true, AWSIAMEnabled: true})
	}
	return m, err
}

func checkCloud(c component) error {
	_, err := readCloud(c)
	return err
}

// useCloud has each connection log on by a token of Azure or AWS, as Dapr's store does.
func useCloud(ctx context.Context, s settings, pool *pgxpool.Config) error {
	m, err := readCloud(s.component)
	if err != nil {
		return err
	}
	if m.UseAzureAD {
		of, err := m.GetPgxPoolConfig()
		if err == nil {
			pool.ConnConfig.Password, pool.BeforeConnect = "", of.BeforeConnect
		}
		return err
	}
	options, err := m.BuildAwsIamOptions(s.logger(), maps.Clone(s.component.properties))
	if err != nil {
		return err
	}
	provider, err := awsauth.NewCredentialProvider(ctx, *options, nil)
	if err != nil {
		return err
	}
	pool.MaxConnLifetime = 10 * time.Minute
	pool.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		token, err := auth.BuildAuthToken(ctx, fmt.Sprintf("%s:%d", c.Host, c.Port), options.Region, c.User, provider)
		c.Password = token
		return err
	}
	return nil
}

// entraID is whom a connection to Redis logs on as, by a new token. Azure ends a connection with its token.
func entraID(ctx context.Context, c component) (user, password string, err error) {
	var s contrib.Settings
	properties := maps.Clone(c.properties)
	if err = s.Decode(properties); err == nil {
		_, _, err = s.GetEntraIDCredentialAndSetInitialTokenAsPassword(ctx, &properties)
	}
	return s.Username, s.Password, err
}

// deniedByCloud tells whether Azure refuses our credentials.
func deniedByCloud(err error) bool {
	var azure *azcore.ResponseError
	return errors.As(err, &azure) && (azure.StatusCode == http.StatusUnauthorized || azure.StatusCode == http.StatusForbidden)
}
