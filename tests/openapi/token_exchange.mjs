// An authorization server of the field that exchanges tokens of users (RFC 8693): token_exchange.mjs PORT SECRET
//
// Any name signs in to the client `app`, whose tokens are for the gateway: JSON Web Tokens, or for the second resource tokens that only this
// server can read. The client `sekisho` asks about tokens and exchanges them for tokens of the resource `https://upstream.example`, and the
// client `upstream` asks about those.
import { Provider, errors } from "oidc-provider";
import { createRemoteJWKSet, jwtVerify } from "jose";

const [port, secret] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const GATEWAY = "https://gateway.example/mcp";
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token";

const resources = {
    [GATEWAY]: { scope: "read write", audience: GATEWAY, accessTokenFormat: "jwt" },
    [`${GATEWAY}/opaque`]: { scope: "read write", audience: GATEWAY, accessTokenFormat: "opaque" },
    "https://upstream.example": { scope: "read", audience: "https://upstream.example", accessTokenFormat: "opaque" },
};
const confidential = (id, ...grants) => ({
    client_id: id,
    client_secret: secret,
    grant_types: ["client_credentials", ...grants],
    redirect_uris: [],
    response_types: [],
});
const provider = new Provider(issuer, {
    clients: [
        {
            client_id: "app",
            token_endpoint_auth_method: "none",
            // Of a native application: any port of loopback (RFC 8252 §7.3).
            application_type: "native",
            redirect_uris: ["http://127.0.0.1/callback"],
            grant_types: ["authorization_code"],
            response_types: ["code"],
        },
        confidential("sekisho", EXCHANGE),
        confidential("upstream"),
    ],
    scopes: ["openid", "read", "write"],
    pkce: { required: () => true },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_, token) => (token.aud === GATEWAY ? { tenant: "acme", roles: ["support"] } : token.extra),
    features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: true },
        introspection: { enabled: true },
        resourceIndicators: {
            enabled: true,
            useGrantedResource: () => true,
            getResourceServerInfo: (_, resource) => {
                if (!resources[resource]) throw new errors.InvalidTarget();
                return resources[resource];
            },
        },
        revocation: { enabled: true },
    },
    ttl: { AccessToken: 600 },
});

// The account of a token that one of the clients here presents: signed, or kept by this server.
const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
const accountOf = async (token) => {
    const kept = await provider.AccessToken.find(token);
    if (kept?.isValid && kept.aud === GATEWAY) return kept.accountId;
    const { payload } = await jwtVerify(token, keys, { issuer, audience: GATEWAY });
    return payload.sub;
};

const exchange = async (ctx) => {
    const { subject_token: subject, subject_token_type: type, actor_token: actor, audience } = ctx.oidc.params;
    const accountId = type === ACCESS_TOKEN && (await accountOf(subject).catch(() => undefined));
    if (!accountId) throw new errors.InvalidGrant("the subject token is not one of a user for this client");
    const actsFor = actor && (await provider.ClientCredentials.find(actor));
    if (actsFor?.clientId !== ctx.oidc.client.clientId) throw new errors.InvalidRequest("the actor is another client");
    if (!resources[audience]) throw new errors.InvalidTarget();
    const token = new provider.AccessToken({
        accountId,
        client: ctx.oidc.client,
        gty: "token_exchange",
        scope: "read",
        extra: { act: { sub: actsFor.clientId } },
    });
    token.resourceServer = new provider.ResourceServer(audience, resources[audience]);
    const value = await token.save();
    ctx.body = {
        access_token: value,
        issued_token_type: ACCESS_TOKEN,
        token_type: "Bearer",
        expires_in: token.expiration,
        scope: "read",
    };
};
provider.registerGrantType(EXCHANGE, exchange, [
    "audience",
    "scope",
    "requested_token_type",
    "subject_token",
    "subject_token_type",
    "actor_token",
    "actor_token_type",
]);
provider.listen(Number(port), "127.0.0.1");
