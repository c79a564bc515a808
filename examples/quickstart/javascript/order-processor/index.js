// order-processor takes orders by Dapr's SDK for JavaScript.
const { CommunicationProtocolEnum, DaprServer, HttpMethod } = require("@dapr/dapr");

const { APP_PORT: serverPort, DAPR_HTTP_PORT: daprPort } = process.env;
const daprHost = "127.0.0.1";

async function main() {
  const server = new DaprServer({
    serverHost: daprHost, serverPort, communicationProtocol: CommunicationProtocolEnum.HTTP, clientOptions: { daprHost, daprPort },
  });
  await server.invoker.listen("orders", async ({ body }) => {
    console.log("Order received: " + body);
    return JSON.parse(body);
  }, { method: HttpMethod.POST });
  await server.start();
}

main();
