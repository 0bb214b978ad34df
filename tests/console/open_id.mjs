// An OpenID provider of the field, with a form in which any name signs in: open_id.mjs PORT CLIENT SECRET
import { Provider } from "oidc-provider";

const [port, client, secret] = process.argv.slice(2);
const roles = { ann: ["support"], nobody: [] };
const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [{
        client_id: client,
        client_secret: secret,
        // Of a native application: any port of loopback (RFC 8252 §7.3).
        application_type: "native",
        redirect_uris: ["http://127.0.0.1/console/sign-in/callback"],
        grant_types: ["authorization_code"],
        response_types: ["code"],
    }],
    pkce: { required: () => true },
    claims: { openid: ["sub", "roles", "tenant"] },
    // The claims are in the ID token.
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, roles: roles[id] ?? [], tenant: "acme" }) }),
    features: { devInteractions: { enabled: true } },
});
provider.listen(Number(port), "127.0.0.1");
