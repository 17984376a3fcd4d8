"""The web app and the HTTP API over one store, for this machine or for a team.

    app.py         everything put together: routes, errors, access
    access.py      who may come in: token, cookie, Host, Origin, and the headers that every answer has
    attempts.py    failed logins, limited for each address; token.py: the token that is kept
    log.py         requests and failures on standard error; readiness.py: whether the store answers
    names.py       ids in addresses
    account.py     an owner's store, agent and talks
    talks.py       the turns that run here, and who follows them
    actions.py     what a person does in a conversation; once.py: what is sent twice happens once
    changes.py     one watch for all who listen; feed.py: changes and turns, for the page
    transfer.py    conversations out as a file, and in; files.py: the files of messages
    problem.py     errors as problem+json, with stable codes
    serve.py       the sockets, and uvicorn; connection.py: clients that never come to the point
    api/           /api/v1, JSON
    page/          the page: templates, styles, scripts, and what fills them

It stands on the store and the agent, and never on SQL. The web framework, the template engine and what renders Markdown
are known in this room alone.
"""
