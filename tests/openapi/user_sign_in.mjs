// An authorization server of the field for the users of an upstream: clients register themselves, any name signs in, and the upstream
// introspects tokens: user_sign_in.mjs PORT CLIENT SECRET
import { Provider } from "oidc-provider";

const [port, client, secret] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [{
        client_id: client,
        client_secret: secret,
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
    }],
    scopes: ["openid", "offline_access", "read"],
    pkce: { required: () => true },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    issueRefreshToken: () => true,
    features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: true },
        introspection: { enabled: true },
        registration: { enabled: true },
        resourceIndicators: {
            enabled: true,
            useGrantedResource: () => true,
            getResourceServerInfo: () => ({ scope: "read", accessTokenFormat: "opaque" }),
        },
        revocation: { enabled: true },
    },
    ttl: { AccessToken: 600 },
});
provider.listen(Number(port), "127.0.0.1");
