// Calls gRPC's health service of a target by xDS, once for each line of its input, and prints the
// address that answered, or the error.
require("./isthmus");
const grpc = require("@grpc/grpc-js"), xds = require("@grpc/grpc-js-xds");

const [target, options] = [process.argv[2], JSON.parse(process.argv[3])];
const empty = () => Buffer.alloc(0);
const Health = grpc.makeGenericClientConstructor({
  check: {
    path: "/grpc.health.v1.Health/Check", requestStream: false, responseStream: false,
    requestSerialize: empty, requestDeserialize: empty, responseSerialize: empty, responseDeserialize: empty,
  },
});
const client = new Health(target, new xds.XdsChannelCredentials(grpc.credentials.createInsecure()), options);
require("node:readline").createInterface({input: process.stdin}).on("line", () => {
  const call = client.check({}, {deadline: Date.now() + 3_000}, error => {
    console.log(error ? `error ${grpc.status[error.code]}: ${error.details.replaceAll("\n", " ")}` : call.getPeer());
  });
}).on("close", () => process.exit());
