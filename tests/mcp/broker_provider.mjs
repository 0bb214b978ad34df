// An identity provider of the field (npm oidc-provider) that registers no clients, in the shape of Entra or of Google, with a form in which any
// name signs in: broker_provider.mjs PORT CLIENT SECRET entra|google PATH. `POST /remove/NAME` removes a user.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const [port, client, secret, shape, path = ''] = process.argv.slice(2);
const isEntra = shape === 'entra';
const origin = `http://127.0.0.1:${port}`;
const removed = new Set();
// Codes of authorizations that asked for access while the user is away.
const offline = new Set();

const ofEntra = (id) => ({ roles: id === 'ann' ? ['Tools.Admin'] : [], tid: path.split('/')[1], oid: `object-of-${id}` });
const ofGoogle = () => ({ email_verified: true, hd: 'acme.example' });
const claims = (id) => ({ sub: id, email: `${id}@acme.example`, name: id, ...(isEntra ? ofEntra(id) : ofGoogle()) });

const provider = new Provider(`${origin}${path}`, {
    clients: [{
        client_id: client,
        client_secret: secret,
        // Of a native application: any port of loopback (RFC 8252 §7.3).
        application_type: 'native',
        redirect_uris: ['http://127.0.0.1/oauth/callback'],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
    }],
    scopes: isEntra ? ['openid', 'profile', 'email', 'offline_access'] : ['openid', 'profile', 'email'],
    claims: { openid: ['sub', ...Object.keys(claims('ann'))], profile: [], email: [] },
    // The claims are in the ID token.
    conformIdTokenClaims: false,
    extraParams: ['access_type', 'response_mode'],
    findAccount: (_, id) => (removed.has(id) ? undefined : { accountId: id, claims: () => claims(id) }),
    issueRefreshToken: (context, _, code) => (isEntra
        ? code.scopes.has('offline_access')
        : offline.has(context.oidc.params.code)),
    rotateRefreshToken: isEntra,
    features: {
        devInteractions: { enabled: true },
        // Without any resource, each is refused.
        resourceIndicators: { enabled: true },
    },
});
provider.on('authorization.success', (context, answer) => {
    if (context.oidc.params.access_type === 'offline') offline.add(answer.code);
});

const answer = provider.callback();
createServer((request, response) => {
    const remove = request.method === 'POST' && request.url.match(/^\/remove\/(\w+)$/);
    if (remove) {
        removed.add(remove[1]);
        response.writeHead(204).end();
        return;
    }
    if (path && !request.url.startsWith(`${path}/`)) {
        response.writeHead(404).end();
        return;
    }
    // Entra gives access while the user is away without asking again; this one asks for consent first.
    if (isEntra && request.url.startsWith(`${path}/auth?`)) request.url += '&prompt=consent';
    // As a framework mounts it.
    request.originalUrl = request.url;
    request.url = request.url.slice(path.length);
    answer(request, response);
}).listen(Number(port), '127.0.0.1');
