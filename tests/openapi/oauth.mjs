// A token server of the field: client credentials, introspection, revocation: oauth.mjs PORT CLIENT SECRET
import { Provider } from 'oidc-provider';

const [port, client, secret] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [{
        client_id: client,
        client_secret: secret,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        scope: 'read',
    }],
    scopes: ['read'],
    features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        introspection: { enabled: true },
        revocation: { enabled: true },
    },
    ttl: { ClientCredentials: 600 },
});
provider.listen(Number(port), '127.0.0.1');
