// checkout sends orders by Dapr's SDK for JavaScript.
const { DaprClient, HttpMethod } = require("@dapr/dapr");

async function main() {
  const client = new DaprClient({ daprHost: "127.0.0.1", daprPort: process.env.DAPR_HTTP_PORT });
  for (let orderId = 1; orderId <= 3; orderId++) {
    const answer = await client.invoker.invoke("order-processor", "orders", HttpMethod.POST, { orderId });
    console.log("Order passed: " + JSON.stringify(answer));
  }
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
