"""The HTTP server: the web app and the HTTP API over one store, for one user or a team.

    app.py           the application: routes, error handlers, middleware
    access.py        access control: token, cookie, Host, Origin, failed logins; security headers
    access_token.py  the stored access token
    account.py       an owner's store, agent and running turns
    turn_runner.py   running turns and their followers; idempotency keys
    actions.py       actions of a user in a conversation
    changes.py       one watch for all listeners; the feed of the page
    attachments.py   uploaded and stored files, image dimensions
    transfer.py      export and import
    problems.py      errors as problem+json, with stable codes
    connection.py    limits of client connections
    serve.py         sockets and uvicorn
    log.py           requests and failures on standard error
    api/             /api/v1 as JSON
    page/            the web app: templates, styles, scripts and their routes

The server uses the store and the agent and contains no SQL. Litestar, Jinja2 and the Markdown libraries are imported
only here.
"""
