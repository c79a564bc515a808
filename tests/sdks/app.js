// An app by Dapr's SDK for JavaScript: it hosts actors of the type in TYPE, or calls actors where
// TYPE is empty.
const http = require("http");
const { AbstractActor, ActorId, ActorProxyBuilder, CommunicationProtocolEnum, DaprClient, DaprServer } = require("@dapr/dapr");

const { TYPE: type, PORT: port, DAPR_HTTP_PORT: daprPort } = process.env;
const daprHost = "127.0.0.1";

/** A basket, which keeps its items in memory. */
class Basket extends AbstractActor {
  items = [];

  async Add(item) {
    const items = [...this.items, item];
    await new Promise((done) => setTimeout(done, 2)); // two calls at a time would lose an item
    this.items = items;
    return { sdk: "js", items };
  }

  async Fail(why) {
    throw new Error(`no basket takes ${why}`);
  }
}

/** What calls send. */
const arguments_ = (request) => {
  const query = new URL(request.url, "http://app").searchParams;
  return ["type", "id", "method", "item"].map((name) => query.get(name));
};

async function host() {
  const server = new DaprServer({
    serverHost: daprHost, serverPort: port, communicationProtocol: CommunicationProtocolEnum.HTTP, clientOptions: { daprHost, daprPort },
  });
  await server.actor.init();
  await server.actor.registerActor({ [type]: class extends Basket {} }[type]);
  await server.start();
}

function call() {
  const client = new DaprClient({ daprHost, daprPort, communicationProtocol: CommunicationProtocolEnum.HTTP });
  http.createServer(async (request, response) => {
    const [type, id, method, item] = arguments_(request);
    try {
      const actor = new ActorProxyBuilder({ [type]: class extends Basket {} }[type], client).build(new ActorId(id));
      response.end(JSON.stringify(await actor[method](item)));
    } catch (err) {
      response.writeHead(502).end(String(err.message));
    }
  }).listen(port, daprHost);
}

type ? host() : call();
